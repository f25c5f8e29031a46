-- challenge_spend: records when the tokens of solved challenges were minted. The first call with a solution sets the time.
-- Later calls with a solution of the same challenge get the same time, and so the same token.
--
-- KEYS: one for each solution. On Redis Cluster, all keys of a call must be in one slot.
-- ARGV: two for each solution: the gateway's time in milliseconds, and the lifetime of the key in milliseconds, at least
--       until the challenge expires
--
-- Returns one time for each solution, in milliseconds.

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
