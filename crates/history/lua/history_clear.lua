-- history_clear: clears one owner's list, after the database did.
--
-- KEYS: 1 views, 2 deleted, 3 marker, 4 count, 5 active: see history_view.lua
-- ARGV: 1 lifetime of the keys in milliseconds, 2 owner, 3 lifetime of the set of active owners in milliseconds,
--       4 time up to which all views are removed
--
-- Returns how many views were removed. The script also forgets the deletions up to that time.

local cleared, loaded, generation = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) (%l) (%S+)$')
if not cleared or tonumber(cleared) < tonumber(ARGV[4]) then cleared = ARGV[4] end
redis.call('SET', KEYS[3], cleared .. ' ' .. (loaded or 'n') .. ' ' .. (generation or '-'))
local gone = redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', cleared)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', cleared)
redis.call('DEL', KEYS[4])
-- The marker first: see history_view.lua.
for _, k in ipairs({ 3, 1, 2 }) do redis.call('PEXPIRE', KEYS[k], ARGV[1]) end
if redis.call('SADD', KEYS[5], ARGV[2]) == 1 then redis.call('PEXPIRE', KEYS[5], ARGV[3]) end
return gone
