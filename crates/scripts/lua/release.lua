-- release: gives claims of one shard back.
--
-- KEYS: 1 stock, 2 claims, 3 pending, 4 epoch (see claim.lua)
-- ARGV: 1 kind, then pairs of user and generation
--   kind "handout"  one handout of the claim never left the gateway; the claim ends when every
--                   handout has come back
--        "decided"  SQL has recorded the claim as released: it ends now
--        "void"     the same, and SQL has no unit behind it: its units do not come back
--
-- Returns one integer a pair:
--   0  no such open claim (any more): nothing changed
--   1  the claim has ended
--   2  other handouts of it are still out
-- A claim ends once: the same release again answers 0.

local NOTHING, ENDED, STILL_OUT = 0, 1, 2

local kind = ARGV[1]
local replies = {}

for i = 2, #ARGV, 2 do
  local user, generation = ARGV[i], ARGV[i + 1]
  local record = redis.call('HGET', KEYS[2], user)
  local bought, current, held, deadline, handouts
  if record then
    bought, current, held, deadline, handouts = string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  end
  if not record or held == '0' or current ~= generation then
    replies[#replies + 1] = NOTHING
  elseif kind == 'handout' and tonumber(handouts) > 1 then
    local left = string.format('%.0f', tonumber(handouts) - 1)
    redis.call('HSET', KEYS[2], user, table.concat({ bought, current, held, deadline, left }, ' '))
    replies[#replies + 1] = STILL_OUT
  else
    if bought == '0' then
      redis.call('HDEL', KEYS[2], user)
    else
      redis.call('HSET', KEYS[2], user, table.concat({ bought, current, '0 0 0' }, ' '))
    end
    redis.call('ZREM', KEYS[3], user)
    if kind ~= 'void' then
      redis.call('INCRBY', KEYS[1], held)
      redis.call('INCR', KEYS[4])
    end
    replies[#replies + 1] = ENDED
  end
end
return replies
