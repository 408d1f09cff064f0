-- Takes charges from all their buckets, or from none; answers the seconds to wait, 0 when taken.
-- KEYS are buckets; ARGV has three numbers for each: amount, per second, burst in seconds.
-- A bucket is "MISSING AT": so many seconds of its rate were missing at that time, in microseconds.
-- One that is full has no key. A clock that was set back refills nothing, and blocks nothing.
local ROUNDING_SECONDS = 1e-9
local LONGEST_MILLISECONDS = 1e15

local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function missing_from(stored)
  if not stored then
    return 0, now
  end
  local missing, at = string.match(stored, "^(%S+) (%S+)$")
  local passed = math.max(now - tonumber(at), 0) / 1000000
  return math.max(tonumber(missing) - passed, 0), tonumber(at)
end

local wait, buckets = 0, {}
for place, key in ipairs(KEYS) do
  local amount, per_second, burst = unpack(ARGV, place * 3 - 2, place * 3)
  local missing, at = missing_from(redis.call("GET", key))
  local needed = amount / per_second
  wait = math.max(wait, missing - math.max(burst - needed, 0))
  buckets[place] = { missing = missing, at = at, needed = needed }
end

local taken = wait <= ROUNDING_SECONDS
for place, bucket in ipairs(buckets) do
  local missing = bucket.missing + (taken and bucket.needed or 0)
  if taken or bucket.at > now then
    local until_full = math.min(math.ceil(missing * 1000) + 1, LONGEST_MILLISECONDS)
    local value = string.format("%.17g %.17g", missing, now)
    redis.call("SET", KEYS[place], value, "PX", string.format("%.0f", until_full))
  end
end
return taken and "0" or string.format("%.17g", wait)
