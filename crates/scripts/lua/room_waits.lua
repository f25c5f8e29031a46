-- room_waits: how long those who entered a waiting room had waited.
--
-- KEYS: waits (hash: class of a wait to how many entered after one)
-- ARGV: number of classes
--
-- Returns for each class, from 0 on, how many.

local counts = {}
for class = 0, ARGV[1] - 1 do
  counts[class + 1] = tonumber(redis.call('HGET', KEYS[1], class) or 0)
end
return counts
