-- Returns the profile of one user as it is at one moment: the time in microseconds, the user's
-- hash, and of each list its name, its event ids with event times, the newest first, and the JSON
-- of the entries in this order.
-- KEYS: the user's hash.
local MAX_UNPACKED = 1000

local function entries(list, ranked)
  local texts, ids = {}, {}
  for place = 1, #ranked, 2 do
    ids[#ids + 1] = ranked[place]
  end
  for first = 1, #ids, MAX_UNPACKED do
    local last = math.min(first + MAX_UNPACKED - 1, #ids)
    for _, json in ipairs(redis.call("HMGET", list .. ":entries", unpack(ids, first, last))) do
      texts[#texts + 1] = json
    end
  end
  return texts
end

local time = redis.call("TIME")
local lists = {}
local names = redis.call("HGET", KEYS[1], "@lists") or ""
for name in string.gmatch(names, "%S+") do
  local list = KEYS[1] .. ":" .. name
  local ranked = redis.call("ZREVRANGE", list, 0, -1, "WITHSCORES")
  lists[#lists + 1] = { name, ranked, entries(list, ranked) }
end
local now = string.format("%.0f", tonumber(time[1]) * 1000000 + tonumber(time[2]))
return { now, redis.call("HGETALL", KEYS[1]), lists }
