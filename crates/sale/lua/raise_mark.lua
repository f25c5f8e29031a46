-- raise_mark: sets a shard's mark to SQL's count, if the shard has not changed since an audit.
--
-- `mark` counts the changes of orders that SQL has committed and the shard has applied: one for each created order, one for
-- each ended order. SQL counts the same. A mark above SQL's count means that SQL has lost commits. A mark below it proves
-- no loss in SQL: Redis may have missed calls or lost data. So a mark is set only to a count that Redis and SQL agree on.
--
-- KEYS: 1 stock, 2 epoch, 3 sums (see shard.lua), 4 sequence, 5 mark
-- ARGV: 1 mark; 2 epoch, 3 sequence and 4 version at the audit
--
-- Returns 1 if it was set; 0 if the shard has changed since, is cold, or has this mark or a higher one.

local shard = load(KEYS[1], KEYS[2], KEYS[3])
if not shard or number(shard.epoch) ~= ARGV[2] or (redis.call('GET', KEYS[4]) or '0') ~= ARGV[3]
  or number(shard.version) ~= ARGV[4] or tonumber(redis.call('GET', KEYS[5]) or 0) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[5], ARGV[1])
return 1
