-- room_look: how a waiting room is, for operators. It changes nothing.
--
-- KEYS: state, setting, inside, waits, see room_state.lua
-- ARGV: number of classes of waits
--
-- Returns the state as it is kept (empty if there is none), the time in Redis in ms, how many sessions live, and for each class
-- of waits, from 0 on, how many entered after one.

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local inside = redis.call('ZCOUNT', KEYS[3], '(' .. string.format('%.0f', now_ms), '+inf')
local replies = { redis.call('GET', KEYS[1]) or '', now_ms, inside }
for class = 0, ARGV[1] - 1 do
  replies[class + 4] = tonumber(redis.call('HGET', KEYS[4], class) or 0)
end
return replies
