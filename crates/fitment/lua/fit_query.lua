-- fit_query: which SKUs of one product fit which vehicles.
--
-- KEYS: 1 directory (hash: SKU to an entry, see fit_put.lua). The keys of its SKUs begin with the directory's name, and so
--         have the same hash tag.
-- ARGV: 1 number of vehicles, 1 to 5, then the offset of each, then the SKUs
--
-- Returns a text with one character for each SKU:
--   @ to _   the character code minus 64 is a bit set: bit i is 1 if the SKU fits vehicle i, from 0
--   -        the directory does not contain the SKU
--   !        the directory contains the SKU, but one of its keys is lost
--
-- Each key has a sentinel, the member 0 or bit 0, which the same command reads. A lost key has no sentinel.

local SEGMENT = 50000
local count = tonumber(ARGV[1])
local members, segments, by_segment = { '0' }, {}, {}
for i = 1, count do
  members[i + 1] = ARGV[i + 1]
  local at = tonumber(ARGV[i + 1]) - 1
  local number = math.floor(at / SEGMENT)
  local segment = by_segment[number]
  if not segment then
    segment = { name = ',' .. number .. ',', key = ':' .. number .. ':', bits = { 'GET', 'u1', '0' }, vehicles = {} }
    by_segment[number] = segment
    segments[#segments + 1] = segment
  end
  local n = #segment.bits
  segment.bits[n + 1], segment.bits[n + 2], segment.bits[n + 3] = 'GET', 'u1', 1 + at % SEGMENT
  segment.vehicles[#segment.vehicles + 1] = 2 ^ (i - 1)
end

local call, byte, find = redis.call, string.byte, string.find
local key, set = KEYS[1], KEYS[1] .. ':s:'

local function of_bitmaps(entry, sku)
  local fits = 64
  for _, segment in ipairs(segments) do
    if find(entry, segment.name, 1, true) then
      local bits = call('BITFIELD_RO', key .. segment.key .. sku, unpack(segment.bits))
      if bits[1] == 0 then return 33 end
      for i, weight in ipairs(segment.vehicles) do fits = fits + weight * bits[i + 1] end
    end
  end
  return fits
end

local entries, answers = call('HMGET', key, unpack(ARGV, count + 2)), {}
for i, entry in ipairs(entries) do
  local kind = entry and byte(entry)
  local answer = 45
  if kind == 115 then -- s
    local found = call('SMISMEMBER', set .. ARGV[count + 1 + i], unpack(members))
    if found[1] == 0 then
      answer = 33
    else
      answer = 64
      local weight = 1
      for j = 2, count + 1 do
        answer = answer + weight * found[j]
        weight = weight + weight
      end
    end
  elseif kind == 98 then -- b
    answer = of_bitmaps(entry, ARGV[count + 1 + i])
  elseif kind == 110 then -- n
    answer = 64
  end
  answers[i] = answer
end
return string.char(unpack(answers))
