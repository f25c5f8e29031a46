-- release: gives claims of one shard back.
--
-- KEYS: 1 stock, 2 claims, 3 pending, 4 epoch (see claim.lua)
-- ARGV: triples of user, generation and kind
--   kind a number   this delivery of the claim never left the gateway; the claim ends when every
--                   delivery has come back
--        "decided"  SQL has recorded the claim as released: it ends now
--        "void"     the same, and SQL has no unit behind it: its units do not come back
--
-- Returns one integer a triple:
--   0  no such open claim (any more): nothing changed
--   1  the claim has ended
--   2  other deliveries of it are still out
-- A claim ends once: the same release again answers 0.

local NOTHING, ENDED, STILL_OUT = 0, 1, 2

-- Whether every delivery has come back, with this one.
local function take_back(r, delivery)
  if delivery < DELIVERIES_MAX then r.out = bit.band(r.out, bit.bnot(bit.lshift(1, delivery))) end
  return r.out == 0
end

local replies = {}

for i = 1, #ARGV, 3 do
  local user, kind, r = ARGV[i], ARGV[i + 2], parse(redis.call('HGET', KEYS[2], ARGV[i]))
  local delivery = tonumber(kind)
  if r.held == 0 or r.generation ~= tonumber(ARGV[i + 1]) then
    replies[#replies + 1] = NOTHING
  elseif delivery and not take_back(r, delivery) then
    keep(KEYS[2], user, r)
    replies[#replies + 1] = STILL_OUT
  else
    local units = close(KEYS[3], user, r)
    keep(KEYS[2], user, r)
    if kind ~= 'void' then give_back(KEYS[1], KEYS[4], units) end
    replies[#replies + 1] = ENDED
  end
end
return replies
