-- settle: a claim of one shard became an order.
--
-- KEYS: 1 stock, 2 claims, 3 pending, 4 epoch (see claim.lua)
-- ARGV: 1 user, 2 generation, 3 deduction
--   deduction ":"  the order's units have left the stock with the claim
--             "~"  they leave it at payment: they come back now
--
-- Returns:
--   0  no such open claim (any more): nothing changed
--   1  settled
-- A claim is settled once: the same call again answers 0.

local r = parse(redis.call('HGET', KEYS[2], ARGV[1]))
if r.held == 0 or r.generation ~= tonumber(ARGV[2]) then return 0 end
local units = close(KEYS[3], ARGV[1], r)
r.orders = with(r.orders, ARGV[2], ARGV[3], units)
keep(KEYS[2], ARGV[1], r)
if ARGV[3] == '~' then give_back(KEYS[1], KEYS[4], units) end
return 1
