-- release: releases claims of one shard.
--
-- KEYS: 1 stock, 2 claims, 3 pending, 4 epoch, 5 sums, 6 bought (see shard.lua, record.lua)
-- ARGV: four for each claim: user, bucket, generation and kind
--   kind a number   this delivery of the claim never left the gateway, or the origin has refused it. The claim ends when
--                   every delivery was returned.
--        "decided"  SQL has recorded the claim as released: it ends now
--        "void"     the same, but SQL has no units for the claim: its units do not return to the stock
--
-- Returns one integer for each claim:
--   0  no such open claim (any more), or a cold shard: nothing changed
--   1  the claim has ended
--   2  other deliveries of the claim are still out
-- A claim ends once: a repeated release returns 0.

local NOTHING, ENDED, STILL_OUT = 0, 1, 2

-- Returns a delivery. Returns whether every delivery was returned.
local function take_back(r, delivery)
  if delivery < DELIVERIES_MAX then r.out = bit.band(r.out, bit.bnot(bit.lshift(1, delivery))) end
  return r.out == 0
end

local shard = load(KEYS[1], KEYS[4], KEYS[5])
local replies, has_changed = {}, false

for i = 1, #ARGV, 4 do
  local user, kind = ARGV[i], ARGV[i + 3]
  local record = shard and redis.call('HGET', KEYS[2], user)
  local r = record and parse(record)
  local delivery = tonumber(kind)
  if not r or r.generation ~= tonumber(ARGV[i + 2]) then
    replies[#replies + 1] = NOTHING
  elseif delivery and not take_back(r, delivery) then
    keep(KEYS[2], KEYS[6], user, ARGV[i + 1], r)
    replies[#replies + 1] = STILL_OUT
  else
    local units = close(shard, KEYS[3], user, r)
    keep(KEYS[2], KEYS[6], user, ARGV[i + 1], r)
    if kind ~= 'void' then change_stock(shard, units) end
    has_changed = true
    replies[#replies + 1] = ENDED
  end
end
if has_changed then save(shard) end
return replies
