-- history_delete: one owner deletes products from the list. The database knows already.
--
-- KEYS: 1 views, 2 deleted, 3 marker, 4 count, 5 active: see history_view.lua
-- ARGV: 1 how long the keys live, in milliseconds, 2 the most views, 3 the owner, 4 how long the set of the active lives,
--       5 until when deletions are forgotten, in milliseconds since the epoch,
--       then of each deletion: up to when views go, the SKU
--
-- Returns how many views went. A view that is newer than its deletion stays.

local cleared, loaded, generation = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) (%l) (%S+)$')
local was_full = redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2])
local gone = 0
for i = 6, #ARGV, 2 do
  local at, sku = tonumber(ARGV[i]), ARGV[i + 1]
  local seen = redis.call('ZSCORE', KEYS[1], sku)
  if seen and tonumber(seen) <= at then
    gone = gone + redis.call('ZREM', KEYS[1], sku)
  end
  if at > tonumber(cleared or 0) then redis.call('ZADD', KEYS[2], 'GT', ARGV[i], sku) end
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[5])
-- A full list may have pushed out what the cold store has, and has room for it now.
if was_full and gone > 0 and loaded == 'a' then redis.call('SET', KEYS[3], cleared .. ' r ' .. generation) end
redis.call('DEL', KEYS[4])
-- The marker first, as in history_view.lua.
for _, k in ipairs({ 3, 1, 2 }) do redis.call('PEXPIRE', KEYS[k], ARGV[1]) end
if redis.call('SADD', KEYS[5], ARGV[3]) == 1 then redis.call('PEXPIRE', KEYS[5], ARGV[4]) end
return gone
