-- charge: removes the units of a paid order from the stock, if the order is deducted at payment.
--
-- KEYS: 1 stock, 2 claims, 3 pending, 4 epoch, 5 sums, 6 bought (see shard.lua, record.lua), 7 mark (see raise_mark.lua)
-- ARGV: 1 user, 2 bucket, 3 generation of the order's claim
--
-- Returns 1 if it was charged, 0 if there is no such order or it was charged before, 2 if the shard is cold. The stock may
-- become negative: SQL has sold the units, and other shards have them. If the claim is still open, this call arrived
-- before its settlement, and the claim's units become the order's.

local shard = load(KEYS[1], KEYS[4], KEYS[5])
if not shard then return 2 end
local r = find(KEYS[2], KEYS[6], ARGV[1], ARGV[2])
if r.held > 0 and r.generation == tonumber(ARGV[3]) then
  local units = close(shard, KEYS[3], ARGV[1], r)
  r.orders = with(r.orders, ARGV[3], ':', units)
  count_order(shard, ARGV[3], ':', units, 1)
  redis.call('INCR', KEYS[7])
else
  local orders, units = {}, nil
  for id, mark, n in string.gmatch(r.orders, '(%d+)([:~])(%d+)') do
    if id == ARGV[3] and mark == '~' then mark, units = ':', tonumber(n) end
    orders[#orders + 1] = id .. mark .. n
  end
  if not units then return 0 end
  r.orders = table.concat(orders, ',')
  count_order(shard, ARGV[3], '~', units, -1)
  count_order(shard, ARGV[3], ':', units, 1)
  shard.version = shard.version + 1
  change_stock(shard, -units)
end
keep(KEYS[2], KEYS[6], ARGV[1], ARGV[2], r)
save(shard)
return 1
