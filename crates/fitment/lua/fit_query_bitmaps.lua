-- fit_query_bitmaps: which SKUs of one product fit one vehicle, when all are kept as bitmaps: the plan of the seed document.
--
-- KEYS: 1 directory: see fit_query.lua. It is not read; the bitmaps have its name with more behind it
-- ARGV: 1 segment of the vehicle, 2 its bit there, then the SKUs
--
-- Returns a text with one character for each SKU: A it fits, @ it does not, - it is unknown, as its bitmap is not there.

local call, key, bit = redis.call, KEYS[1] .. ':' .. ARGV[1] .. ':', ARGV[2]
local answers = {}
for i = 3, #ARGV do
  local bits = call('BITFIELD_RO', key .. ARGV[i], 'GET', 'u1', '0', 'GET', 'u1', bit)
  answers[i - 2] = bits[1] == 1 and 64 + bits[2] or 45
end
return string.char(unpack(answers))
