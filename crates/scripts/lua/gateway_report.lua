-- gateway_report: stores what one engine of a gateway runs, for operators.
--
-- KEYS: 1 hash: reporter to report
-- ARGV: lifetime in seconds, maximum number of reporters, maximum bytes of a report with its reporter, reporter, report
--
-- Returns 1, or 0 if the report was dropped because it or the hash is too large.

local is_new = redis.call('HEXISTS', KEYS[1], ARGV[4]) == 0
if #ARGV[4] + #ARGV[5] > tonumber(ARGV[3])
  or (is_new and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[2])) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[4], ARGV[5])
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
