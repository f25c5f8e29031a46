-- settle: turns a claim of one shard into an order.
--
-- KEYS: 1 stock, 2 claims, 3 pending, 4 epoch, 5 sums, 6 bought (see shard.lua, record.lua), 7 mark (see raise_mark.lua)
-- ARGV: 1 user, 2 bucket, 3 generation, 4 deduction
--   deduction ":"  the order's units have left the stock with the claim
--             "~"  they leave it at payment: they return to the stock now
--
-- Returns:
--   0  no such open claim (any more), or a cold shard: nothing changed
--   1  settled
-- A claim is settled once: a repeated call returns 0.

local shard = load(KEYS[1], KEYS[4], KEYS[5])
local record = shard and redis.call('HGET', KEYS[2], ARGV[1])
if not record then return 0 end
local r = parse(record)
if r.generation ~= tonumber(ARGV[3]) then return 0 end
local units = close(shard, KEYS[3], ARGV[1], r)
r.orders = with(r.orders, ARGV[3], ARGV[4], units)
count_order(shard, ARGV[3], ARGV[4], units, 1)
if ARGV[4] == '~' then change_stock(shard, units) end
keep(KEYS[2], KEYS[6], ARGV[1], ARGV[2], r)
save(shard)
redis.call('INCR', KEYS[7])
return 1
