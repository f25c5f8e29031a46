-- history_clear: one owner clears the list. The database knows already.
--
-- KEYS: 1 views, 2 deleted, 3 marker, 4 count, 5 active: see history_view.lua
-- ARGV: 1 how long the keys live, in milliseconds, 2 the owner, 3 how long the set of the active lives,
--       4 up to when all views go
--
-- Returns how many views went. Deletions that this one covers are forgotten.

local cleared, loaded, generation = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) (%l) (%S+)$')
if not cleared or tonumber(cleared) < tonumber(ARGV[4]) then cleared = ARGV[4] end
redis.call('SET', KEYS[3], cleared .. ' ' .. (loaded or 'n') .. ' ' .. (generation or '-'))
local gone = redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', cleared)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', cleared)
redis.call('DEL', KEYS[4])
-- The marker first, as in history_view.lua.
for _, k in ipairs({ 3, 1, 2 }) do redis.call('PEXPIRE', KEYS[k], ARGV[1]) end
if redis.call('SADD', KEYS[5], ARGV[2]) == 1 then redis.call('PEXPIRE', KEYS[5], ARGV[3]) end
return gone
