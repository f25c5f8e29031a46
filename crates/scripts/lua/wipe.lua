-- wipe: forgets all claims and transfers of a cold shard, before it is rebuilt.
--
-- KEYS: 1 stock, 2 claims, 3 pending, 4 transfers, 5 deposits (see claim.lua, lend.lua)
-- ARGV: none
--
-- Returns 1 if the shard is cold, else 0: then nothing changed.

if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
return 1
