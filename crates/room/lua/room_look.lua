-- room_look: how a waiting room is, for operators. It changes nothing.
--
-- KEYS: state, setting, inside, waits, holds, see room_state.lua
-- ARGV: number of classes of waits
--
-- Returns the state as it is kept (empty if there is none), the time in Redis in ms, how many sessions live, how many visitors
-- wait for room at places that have passed on for others, and for each class of waits, from 0 on, how many entered after one.

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local inside = redis.call('ZCOUNT', KEYS[3], '(' .. string.format('%.0f', now_ms), '+inf')
local state = redis.call('GET', KEYS[1]) or ''
local lapsed = string.match(state, ' (%d+) %d+$') or 0
local replies = { state, now_ms, inside, redis.call('ZCOUNT', KEYS[5], 1, lapsed) }
for class = 0, ARGV[1] - 1 do
  replies[class + 5] = tonumber(redis.call('HGET', KEYS[4], class) or 0)
end
return replies
