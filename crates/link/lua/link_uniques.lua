-- link_uniques: adds visitors and addresses of one link, for one hour and its day, and counts the distinct ones.
--
-- KEYS: HyperLogLogs of the hour's visitors, the hour's addresses, the day's visitors, the day's addresses
-- ARGV: expiry of the hour's keys, expiry of the day's keys (milliseconds since the Unix epoch), number of visitors, then
--       the visitors' hashes, then the addresses' hashes
--
-- The call is idempotent: hashes that were added before change nothing.
--
-- Returns the number of distinct hashes in each of the KEYS. HyperLogLogs count with a standard error of 0.81 %.

local head, visitors = 3, tonumber(ARGV[3])
local ranges = {{head + 1, head + visitors}, {head + visitors + 1, #ARGV}}
local counts = {}
for k = 1, 4 do
  local range = ranges[(k - 1) % 2 + 1]
  if range[1] <= range[2] then
    redis.call('PFADD', KEYS[k], unpack(ARGV, range[1], range[2]))
    redis.call('PEXPIREAT', KEYS[k], ARGV[k <= 2 and 1 or 2])
  end
  counts[k] = redis.call('PFCOUNT', KEYS[k])
end
return counts
