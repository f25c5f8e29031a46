-- history_view: adds products that one owner has viewed.
--
-- KEYS: 1 views (sorted set: SKU by time), 2 deleted (sorted set: SKU by time of its deletion),
--       3 marker ("<cleared_ms> <loaded> <generation>", see history_fill.lua), 4 count, 5 active (set: owners of one day)
-- ARGV: 1 lifetime of the keys in milliseconds, 2 maximum views, 3 owner, 4 lifetime of the set of active owners in
--       milliseconds, then for each view: its time, SKU
--
-- Returns for each view: 0 it was deleted or cleared before, 1 it is the latest of its SKU, 2 the list already contains it
-- or a later one.
--
-- A view that is not newer than its removal changes nothing. A repeated view changes nothing. So the list does not depend
-- on the order or the number of deliveries.

local cleared = tonumber(string.match(redis.call('GET', KEYS[3]) or '0', '^%d+'))
local has_deleted = redis.call('EXISTS', KEYS[2]) == 1
local outcomes, is_changed = {}, false
for i = 5, #ARGV, 2 do
  local at, sku = tonumber(ARGV[i]), ARGV[i + 1]
  local deleted = has_deleted and redis.call('ZSCORE', KEYS[2], sku)
  local outcome = 0
  if at > cleared and not (deleted and at <= tonumber(deleted)) then
    outcome = redis.call('ZADD', KEYS[1], 'GT', 'CH', ARGV[i], sku) == 1 and 1 or 2
  end
  is_changed = is_changed or outcome == 1
  outcomes[#outcomes + 1] = outcome
end
if is_changed then
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[2])
  redis.call('DEL', KEYS[4])
  -- The marker first: Redis' clock advances meanwhile, and the other keys must not expire before the marker. Without a
  -- marker they are loaded again.
  redis.call('PEXPIRE', KEYS[3], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  if has_deleted then redis.call('PEXPIRE', KEYS[2], ARGV[1]) end
  if redis.call('SADD', KEYS[5], ARGV[3]) == 1 then redis.call('PEXPIRE', KEYS[5], ARGV[4]) end
end
return outcomes
