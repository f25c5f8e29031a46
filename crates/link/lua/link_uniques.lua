-- link_uniques: different visitors and addresses of one link, in one hour and in its day.
--
-- KEYS: HyperLogLogs of the hour's visitors, the hour's addresses, the day's visitors, the day's
-- addresses
-- ARGV: when the hour's keys expire, when the day's do (ms since the epoch), number of visitors, then
-- the visitors' hashes, then the addresses' hashes
--
-- Adds all of them; what was added before changes nothing, so the call may be made again.
--
-- Returns how many different ones each of the KEYS has seen, as HyperLogLogs count: with a standard
-- error of 0.81 %.

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
