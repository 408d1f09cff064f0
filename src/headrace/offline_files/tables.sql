-- create
CREATE TABLE IF NOT EXISTS headrace_offline_files (
  source text PRIMARY KEY,
  batches bigint NOT NULL,
  counters json NOT NULL,
  changed timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS headrace_dead_letters (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  source text NOT NULL,
  file text NOT NULL,
  line bigint NOT NULL,
  counter bigint,
  table_name text NOT NULL,
  reason text NOT NULL,
  detail text NOT NULL,
  content bytea NOT NULL,
  digest text NOT NULL,
  written timestamptz NOT NULL DEFAULT now()
);

-- one-at-a-time
SELECT pg_advisory_xact_lock(hashtextextended('headrace.offline-files', 0));

-- notice-dead-hosts
SET tcp_keepalives_idle = 20;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 4;

-- keep-others-out
SELECT pg_try_advisory_lock(hashtextextended('headrace.offline-files/' || %s, 0));

-- begin-source
INSERT INTO headrace_offline_files (source, batches, counters) VALUES (%s, 0, '[]')
ON CONFLICT DO NOTHING;

-- read-progress
SELECT batches, counters::text FROM headrace_offline_files WHERE source = %s;

-- read-uncounted
SELECT DISTINCT digest FROM headrace_dead_letters WHERE source = %s AND counter IS NULL;

-- write-progress
UPDATE headrace_offline_files SET batches = batches + 1, counters = %s, changed = now()
WHERE source = %s AND batches = %s;

-- check-at-once
SET CONSTRAINTS ALL IMMEDIATE;

-- write-letter
INSERT INTO headrace_dead_letters
  (source, file, line, counter, table_name, reason, detail, content, digest)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s);
