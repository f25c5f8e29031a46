-- settle: a claim of one shard became an order.
--
-- KEYS: 1 claims, 2 pending (see claim.lua)
-- ARGV: 1 user, 2 generation
--
-- Returns:
--   0  no such open claim (any more): nothing changed
--   1  settled
-- A claim is settled once: the same call again answers 0.

local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record then return 0 end
local bought, generation, held = string.match(record, '^(%d+) (%d+) (%d+) %d+ %d+$')
if held == '0' or generation ~= ARGV[2] then return 0 end
local total = string.format('%.0f', tonumber(bought) + tonumber(held))
redis.call('HSET', KEYS[1], ARGV[1], table.concat({ total, generation, '0 0 0' }, ' '))
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
