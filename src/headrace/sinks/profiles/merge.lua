-- Merges a change into the profile of one user; what a profile is: sinks/profiles/__init__.py.
-- KEYS: the user's hash. ARGV: an array in MessagePack, since a client packs that faster than many
-- arguments: ttl in microseconds; until when the user is forgotten, "" for not at all; the number of
-- fields, then name, event time and JSON of each; the number of lists, then of each its name, the
-- most entries, and the number of entries, with event id, event time and JSON. Event times are
-- texts: Lua would write them as numbers of 14 digits.
local MAX_UNPACKED = 1000

local profile, arguments, argument = KEYS[1], cmsgpack.unpack(ARGV[1]), 0

local function take()
  argument = argument + 1
  return arguments[argument]
end

local time = redis.call("TIME")
local ttl = tonumber(take())
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local expired = tonumber(time[1]) * 1000000 + tonumber(time[2]) - ttl
local forgotten_text = take()
local newest = -math.huge
local stored = {}

local function text(number)
  return string.format("%.0f", number)
end

-- Lua compares texts by the server's locale, other writers by bytes.
local function is_greater(left, right)
  if left == right then
    return false
  end
  for place = 1, math.min(#left, #right) do
    local a, b = left:byte(place), right:byte(place)
    if a ~= b then
      return a > b
    end
  end
  return #left > #right
end

local function is_newer(at, json, version)
  if not version then
    return true
  end
  local stored_at, stored_json = string.match(version, "^(%S+) (.*)$")
  if tonumber(at) ~= tonumber(stored_at) then
    return tonumber(at) > tonumber(stored_at)
  end
  return is_greater(json, stored_json)
end

local function read_stored()
  local flat = redis.call("HGETALL", profile)
  for place = 1, #flat, 2 do
    stored[flat[place]] = flat[place + 1]
  end
  newest = tonumber(stored["@newest"]) or newest
end

local function store(name, value)
  if stored[name] ~= value then
    redis.call("HSET", profile, name, value)
    stored[name] = value
  end
end

local function forgotten_until()
  return math.max(tonumber(forgotten_text) or -math.huge,
    tonumber(stored["@forgotten"]) or -math.huge)
end

local function prune_fields(floor)
  for name, value in pairs(stored) do
    if name:byte() ~= 64 and tonumber(string.match(value, "^%S+")) <= floor then
      redis.call("HDEL", profile, name)
      stored[name] = nil
    end
  end
end

-- One that has expired stays with the hash: another writer may have a longer ttl.
local function keep_marker(forgotten)
  if forgotten > expired then
    store("@forgotten", text(forgotten))
    newest = math.max(newest, forgotten)
  end
end

local function remove(list, ids)
  for first = 1, #ids, MAX_UNPACKED do
    local last = math.min(first + MAX_UNPACKED - 1, #ids)
    redis.call("ZREM", list, unpack(ids, first, last))
    redis.call("HDEL", list .. ":entries", unpack(ids, first, last))
  end
end

local function prune_list(list, floor)
  remove(list, redis.call("ZRANGEBYSCORE", list, "-inf", text(floor)))
end

local function merge_fields(floor)
  for _ = 1, tonumber(take()) do
    local name, at, json = take(), take(), take()
    if tonumber(at) > floor then
      newest = math.max(newest, tonumber(at))
      if is_newer(at, json, stored[name]) then
        store(name, at .. " " .. json)
      end
    end
  end
end

-- Event time below which a full list takes no entry.
local function lowest_of(list, max_entries)
  if redis.call("ZCARD", list) < max_entries then
    return -math.huge
  end
  return tonumber(redis.call("ZRANGE", list, 0, 0, "WITHSCORES")[2])
end

local function merge_entry(list, id, at, json)
  local score = redis.call("ZSCORE", list, id)
  if score and tonumber(at) < tonumber(score) then
    return
  end
  local is_equal = score and tonumber(at) == tonumber(score)
  if is_equal and not is_greater(json, redis.call("HGET", list .. ":entries", id) or "") then
    return
  end
  redis.call("HSET", list .. ":entries", id, json)
  if not is_equal then
    redis.call("ZADD", list, at, id)
  end
end

-- Never earlier: with a shorter ttl, the hash would end before lists that this change leaves alone.
local function expire(key, at)
  local until_ms = math.floor((at + ttl) / 1000) + 1
  if redis.call("PTTL", key) < until_ms - now_ms then
    redis.call("PEXPIREAT", key, text(until_ms))
  end
end

local function merge_list(list, floor)
  local max_entries = tonumber(take())
  local lowest = lowest_of(list, max_entries)
  for _ = 1, tonumber(take()) do
    local id, at, json = take(), take(), take()
    local number = tonumber(at)
    if number > floor then
      newest = math.max(newest, number)
      if number >= lowest then
        merge_entry(list, id, at, json)
      end
    end
  end
  local excess = redis.call("ZCARD", list) - max_entries
  if excess > 0 then
    remove(list, redis.call("ZRANGE", list, 0, excess - 1))
  end
  local latest = redis.call("ZREVRANGE", list, 0, 0, "WITHSCORES")[2]
  if latest then
    expire(list, tonumber(latest))
    expire(list .. ":entries", tonumber(latest))
  end
end

local function known_lists()
  local names = {}
  for name in string.gmatch(stored["@lists"] or "", "%S+") do
    names[#names + 1] = name
    names[name] = true
  end
  return names
end

read_stored()
local forgotten = forgotten_until()
local floor = math.max(forgotten, expired)
local lists = known_lists()
-- Removals first: a full Redis takes no other command before a script has written something.
prune_fields(floor)
for _, name in ipairs(lists) do
  prune_list(profile .. ":" .. name, floor)
end
keep_marker(forgotten)
merge_fields(floor)
for _ = 1, tonumber(take()) do
  local name = take()
  merge_list(profile .. ":" .. name, floor)
  if not lists[name] then
    lists[#lists + 1] = name
  end
end
if newest > expired then
  store("@newest", text(newest))
  if #lists > 0 then
    table.sort(lists)
    store("@lists", table.concat(lists, " "))
  end
  expire(profile, newest)
end
