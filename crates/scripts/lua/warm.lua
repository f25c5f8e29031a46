-- warm: puts units on a cold shard.
--
-- KEYS: 1 stock, 2 epoch (see claim.lua)
-- ARGV: 1 units, 2 now_ms
--
-- Returns 1 if the shard was cold, 0 if it holds stock already: then nothing changed, so warming
-- twice never makes units. Epochs start at the time, so that they do not repeat after a loss of
-- data.

if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1
