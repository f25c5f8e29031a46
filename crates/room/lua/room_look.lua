-- room_look: reads the state of a waiting room, for operators. Changes nothing.
--
-- KEYS: state, setting, inside, waits, holds: see room_state.lua
-- ARGV: number of classes of waits, SLOT_MS, SLOTS
--
-- Returns an array: the state as stored (empty if there is none), the time in Redis in milliseconds, the number of active
-- sessions, the number of visitors who wait for capacity at expired positions, the entries in the last minute, and for
-- each class of waits, from 0 on, its entries.

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local inside = redis.call('ZCOUNT', KEYS[3], '(' .. string.format('%.0f', now_ms), '+inf')
local state = redis.call('GET', KEYS[1]) or ''
local lapsed = string.match(state, ' (%d+) %d+$') or 0
local slot, recent = math.floor(now_ms / ARGV[2]), 0
for i = 0, ARGV[3] - 1 do
  local of, count = string.match(redis.call('HGET', KEYS[4], 'm' .. i) or '', '^(%d+):(%d+)$')
  if of and tonumber(of) > slot - ARGV[3] and tonumber(of) <= slot then recent = recent + tonumber(count) end
end
local replies = { state, now_ms, inside, redis.call('ZCOUNT', KEYS[5], 1, lapsed), recent }
for class = 0, ARGV[1] - 1 do
  replies[class + 6] = tonumber(redis.call('HGET', KEYS[4], class) or 0)
end
return replies
