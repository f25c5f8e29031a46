-- cancel: an order, or the claim that SQL has made one of, ends; what it took from the stock comes
-- back.
--
-- KEYS: 1 stock, 2 claims, 3 pending, 4 epoch (see claim.lua)
-- ARGV: 1 user, 2 generation of the claim that the order came of
--
-- Returns 1 if it did, 0 if there is no such order or claim (any more).

local r = parse(redis.call('HGET', KEYS[2], ARGV[1]))
local units = 0
if r.held > 0 and r.generation == tonumber(ARGV[2]) then
  units = close(KEYS[3], ARGV[1], r)
else
  local rest, mark, ordered_units = without(r.orders, ARGV[2])
  if not mark then return 0 end
  r.orders = rest
  if mark == ':' then units = ordered_units end
end
keep(KEYS[2], ARGV[1], r)
if units > 0 then give_back(KEYS[1], KEYS[4], units) end
return 1
