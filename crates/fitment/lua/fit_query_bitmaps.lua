-- fit_query_bitmaps: which SKUs of one product fit one vehicle, if all SKUs are bitmaps: the plan of the seed document.
--
-- KEYS: 1 directory: see fit_query.lua. The script does not read it; the names of the bitmaps begin with its name.
-- ARGV: 1 segment of the vehicle, 2 its bit in the segment, then the SKUs
--
-- Returns a text with one character for each SKU: A it fits, @ it does not fit, - it is unknown because it has no bitmap.

local call, key, bit = redis.call, KEYS[1] .. ':' .. ARGV[1] .. ':', ARGV[2]
local answers = {}
for i = 3, #ARGV do
  local bits = call('BITFIELD_RO', key .. ARGV[i], 'GET', 'u1', '0', 'GET', 'u1', bit)
  answers[i - 2] = bits[1] == 1 and 64 + bits[2] or 45
end
return string.char(unpack(answers))
