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
  local user, r = ARGV[i], parse(redis.call('HGET', KEYS[2], ARGV[i]))
  if r.held == 0 or r.generation ~= tonumber(ARGV[i + 1]) then
    replies[#replies + 1] = NOTHING
  elseif kind == 'handout' and r.handouts > 1 then
    r.handouts = r.handouts - 1
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
