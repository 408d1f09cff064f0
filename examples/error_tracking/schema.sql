-- The database of the service before: who pays, what they run, and the rows of its offline files.
-- In a schema of its own, started over each time; headrace keeps its two tables in it as well.
DROP SCHEMA IF EXISTS error_tracking CASCADE;
CREATE SCHEMA error_tracking;
SET search_path = error_tracking;

CREATE TABLE accounts (
  name text PRIMARY KEY
);

CREATE TABLE projects (
  id bigint PRIMARY KEY,
  account text NOT NULL REFERENCES accounts,
  name text NOT NULL
);

CREATE TABLE raw_item (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  uuid uuid NOT NULL UNIQUE,
  project_id bigint NOT NULL REFERENCES projects,
  "timestamp" bigint NOT NULL,
  version int NOT NULL,
  billable int NOT NULL,
  body jsonb NOT NULL,
  counter bigint NOT NULL
);

INSERT INTO accounts VALUES ('acme'), ('globex');
INSERT INTO projects VALUES (1, 'acme', 'shop'), (2, 'acme', 'warehouse'), (3, 'globex', 'app');
