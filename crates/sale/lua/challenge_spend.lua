-- challenge_spend: which tokens solved challenges lead to. Whoever comes first with a solution decides when its token was
-- minted; whoever comes again with one of the same challenge hears of that, and so gets the same token.
--
-- KEYS: one a solution. On Redis Cluster all of one call must be of one slot.
-- ARGV, two a solution: the time by the gateway in milliseconds, and for how many milliseconds it is kept: at least until the
-- challenge has expired
--
-- Returns one time a solution.

local times = {}
for k = 1, #KEYS do
  local now, keep = ARGV[2 * k - 1], ARGV[2 * k]
  if redis.call('SET', KEYS[k], now, 'NX', 'PX', keep) then
    times[k] = now
  else
    times[k] = redis.call('GET', KEYS[k])
  end
end
return times
