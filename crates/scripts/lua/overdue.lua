-- overdue: claims of one shard whose deadline has passed, the earliest first.
--
-- KEYS: 1 claims, 2 pending (see claim.lua)
-- ARGV: 1 now_ms, 2 limit
--
-- Returns an array of {user, generation, quantity, deadline_ms, 0}.

local replies = {}
for _, user in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])) do
  local r = parse(redis.call('HGET', KEYS[1], user))
  replies[#replies + 1] = { user, r.generation, r.held, r.deadline, 0 }
end
return replies
