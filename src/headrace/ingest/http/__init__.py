"""One request and its answer in HTTP's terms: headers, body, limits, origins, problems."""
