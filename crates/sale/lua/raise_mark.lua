-- raise_mark: sets a shard's mark to what SQL counts, if the shard is as an audit has seen it.
--
-- `mark` counts the changes of orders that the shard was told of after SQL had committed them: an order made is one, an
-- order ended is one. SQL counts the same. A mark above SQL's count means that SQL lost commits. A mark below it means
-- nothing: Redis may have lost calls, or data. So a mark is never set to more than Redis and SQL agree on.
--
-- KEYS: 1 stock, 2 epoch, 3 sums (see shard.lua), 4 sequence, 5 mark
-- ARGV: 1 mark, 2 epoch, 3 sequence and 4 version as the audit saw them
--
-- Returns 1 if it did; 0 if the shard has changed since, is cold, or has this mark or a higher one.

local shard = load(KEYS[1], KEYS[2], KEYS[3])
if not shard or number(shard.epoch) ~= ARGV[2] or (redis.call('GET', KEYS[4]) or '0') ~= ARGV[3]
  or number(shard.version) ~= ARGV[4] or tonumber(redis.call('GET', KEYS[5]) or 0) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[5], ARGV[1])
return 1
