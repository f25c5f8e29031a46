-- history_view: one owner has seen products.
--
-- KEYS: 1 views (sorted set: SKU by time), 2 deleted (sorted set: SKU by when it was deleted),
--       3 marker ("<cleared_ms> <loaded> <generation>", see history_fill.lua), 4 count, 5 active (set: owners of one day)
-- ARGV: 1 how long the keys live, in milliseconds, 2 the most views, 3 the owner, 4 how long the set of the active lives,
--       then of each view: its time, the SKU
--
-- Returns of each view: 0 it was deleted or cleared before, 1 it is the latest of its SKU, 2 a later one is known, or this.
--
-- A view that is not newer than what was removed changes nothing, and one that came before changes nothing again: in whatever
-- order and however often views come, the list is the same.

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
  -- The marker first, for Redis' clock goes on meanwhile: the others must not end before it. Without it, they are loaded.
  redis.call('PEXPIRE', KEYS[3], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  if has_deleted then redis.call('PEXPIRE', KEYS[2], ARGV[1]) end
  if redis.call('SADD', KEYS[5], ARGV[3]) == 1 then redis.call('PEXPIRE', KEYS[5], ARGV[4]) end
end
return outcomes
