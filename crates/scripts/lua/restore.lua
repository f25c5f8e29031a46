-- restore: writes users' orders on a cold shard, as SQL knows them.
--
-- KEYS: 1 stock, 2 claims, 3 sequence (see claim.lua)
-- ARGV: triples of user, generation of the last order, orders as in record.lua
--
-- Returns 1 if the shard is cold, else 0: then nothing changed.

if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local sequence = tonumber(redis.call('GET', KEYS[3]) or 0)
for i = 1, #ARGV, 3 do
  sequence = math.max(sequence, tonumber(ARGV[i + 1]))
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1] .. ' 0 0 0 0 ' .. ARGV[i + 2])
end
redis.call('SET', KEYS[3], number(sequence))
return 1
