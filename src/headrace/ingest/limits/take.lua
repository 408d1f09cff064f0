-- Takes the charges of several requests in turn, each from all its buckets or from none; answers
-- for each the seconds to wait, "0" when taken.
-- ARGV: for each request its number of charges, then amount, per second and burst in seconds of
-- each. KEYS: their buckets, in this order.
-- A bucket is "MISSING AT": so many seconds of its rate were missing at that time, in microseconds.
-- One that is full has no key. A clock that was set back refills nothing, and blocks nothing.
local ROUNDING_SECONDS = 1e-9
local MAX_MILLISECONDS = 1e15

local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function read(key)
  local stored = redis.call("GET", key)
  if not stored then
    return 0, now
  end
  local missing, at = string.match(stored, "^(%S+) (%S+)$")
  local passed = math.max(now - tonumber(at), 0) / 1000000
  return math.max(tonumber(missing) - passed, 0), tonumber(at)
end

local function write(key, missing)
  local value = string.format("%.17g %.17g", missing, now)
  local until_full = math.min(math.ceil(missing * 1000) + 1, MAX_MILLISECONDS)
  redis.call("SET", key, value, "PX", string.format("%.0f", until_full))
end

local key, argument = 0, 0

local function next_charge()
  key, argument = key + 1, argument + 3
  local amount, per_second, burst = unpack(ARGV, argument - 2, argument)
  local missing, at = read(KEYS[key])
  return { key = KEYS[key], missing = missing, at = at, needed = amount / per_second, burst = burst }
end

local function take(count)
  local wait, charges = 0, {}
  for place = 1, count do
    local charge = next_charge()
    wait = math.max(wait, charge.missing - math.max(charge.burst - charge.needed, 0))
    charges[place] = charge
  end
  local taken = wait <= ROUNDING_SECONDS
  for _, charge in ipairs(charges) do
    if taken or charge.at > now then
      write(charge.key, charge.missing + (taken and charge.needed or 0))
    end
  end
  return taken and "0" or string.format("%.17g", wait)
end

local waits = {}
while argument < #ARGV do
  argument = argument + 1
  waits[#waits + 1] = take(tonumber(ARGV[argument]))
end
return waits
