-- charge: an order that was to be deducted at payment is paid, and its units leave the stock.
--
-- KEYS: 1 stock, 2 claims, 3 pending (see claim.lua)
-- ARGV: 1 user, 2 generation of the claim that the order came of
--
-- Returns 1 if it did, 0 if there is no such order, or it was charged before. The stock may fall below
-- 0: SQL has decided that the units are sold, and other shards have them. If the claim is still open,
-- its settlement was overtaken: the units that it holds are the order's.

local r = parse(redis.call('HGET', KEYS[2], ARGV[1]))
if r.held > 0 and r.generation == tonumber(ARGV[2]) then
  r.orders = with(r.orders, ARGV[2], ':', close(KEYS[3], ARGV[1], r))
  keep(KEYS[2], ARGV[1], r)
  return 1
end
local orders, units = {}, nil
for id, mark, n in string.gmatch(r.orders, '(%d+)([:~])(%d+)') do
  if id == ARGV[2] and mark == '~' then mark, units = ':', n end
  orders[#orders + 1] = id .. mark .. n
end
if not units then return 0 end
r.orders = table.concat(orders, ',')
keep(KEYS[2], ARGV[1], r)
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('DECRBY', KEYS[1], units) end
return 1
