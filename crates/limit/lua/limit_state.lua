-- limit_state: the state of rate limits, exactly as in crates/limit/src, which documents the algorithms and their reasons.
-- Precedes every script that needs it.
--
-- KEYS: each key once
-- ARGV:
--   1  now_ms   0: Redis' own clock, which all gateways share. Other values are only for tests.
--   2  quotas   for each quota: its algorithm's letter, rate, per_ms and burst, each followed by a space
--   3  numbers  each followed by a space; the script defines them. They refer to keys and quotas by index, from 1.
--
-- A key is a string: an algorithm's letter and the numbers of a state, each preceded by a space.
--   g at_ms ticks per_ms           GCRA
--   s latest_ms width_ms lines     sliding window; for each line, the newest first: back_ms count
--   f start_ms count               fixed window
--   c start_ms latest before       concurrency limit: requests in flight
-- Any other value, and a value of another algorithm, counts as a missing key. A key expires SET_BACK_MS_MAX after its state
-- becomes equal to that of a missing key, under the quota of its last charge. If the clock goes back by up to that
-- time, the state is needed again.
--
-- All numbers are integers in doubles, which are exact up to 2^53. Where the code gives no other proof, a number is a sum
-- of times (below 2^48, until the year 10889), periods (below 2^35), counts and rates (below 2^21), or a sum of ticks and
-- the cost of a request, both at most 2^52.
-- `math.floor` and `math.ceil` of a / b, and `%`, are exact for integers a >= 0, b > 0 with a + b <= 2^53. Proof: let k be
-- an integer next to a / b, but not equal to it. They differ by at least 1 / b. Rounding moves a / b to k only over at
-- most k * 2^-53, so only if k * b >= 2^53; but k * b < a + b.

local SET_BACK_MS_MAX = 1000
local LINES = 8
local RETRY_MS = 1000
local WHOLE_MAX = 2 ^ 53

local min, max, ceil = math.min, math.max, math.ceil

local now_ms = tonumber(ARGV[1])
if now_ms == 0 then
  local time = redis.call('TIME')
  now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- requests * per_ms - elapsed_ms * rate, for requests and rate below 2^20, per_ms below 2^35, elapsed_ms below 2^48.
-- The products may exceed 2^53, so the function computes them in two parts. Each part is exact, and so is their sum up
-- to 2^53. A larger sum is rounded, but stays above 2^53.
local function ticks_left(requests, per_ms, elapsed_ms, rate)
  local per_low, elapsed_low = per_ms % 65536, elapsed_ms % 65536
  local high = requests * ((per_ms - per_low) / 65536) - (elapsed_ms - elapsed_low) / 65536 * rate
  return high * 65536 + (requests * per_low - elapsed_low * rate)
end

local gcra = {
  letter = 'g', least = 3, most = 3,
  advance = function(state, quota)
    local at_ms, ticks, per_ms = state[1], state[2], state[3]
    if per_ms == 0 or at_ms > now_ms + SET_BACK_MS_MAX then at_ms, ticks, per_ms = 0, 0, quota.per_ms end
    local elapsed_ms = max(now_ms - at_ms, 0)
    if per_ms == quota.per_ms then
      -- The product may exceed 2^53 and be rounded. It stays above 2^53, and so above the ticks.
      ticks = ticks - elapsed_ms * quota.rate
    else
      ticks = ticks_left(ceil(ticks / per_ms), quota.per_ms, elapsed_ms, quota.rate)
    end
    return { max(at_ms, now_ms), min(max(ticks, 0), quota.ticks), quota.per_ms }
  end,
  wait_ms = function(state, quota, cost)
    local over = state[2] + cost * quota.per_ms - quota.ticks
    return over <= 0 and 0 or ceil(over / quota.rate) + state[1] - now_ms
  end,
  used = function(state, quota) return ceil(state[2] / quota.per_ms) end,
  add = function(state, quota, cost) state[2] = state[2] + cost * quota.per_ms end,
  take_back = function(state, quota, cost)
    local ticks = min(cost * quota.per_ms, state[2])
    state[2] = state[2] - ticks
    return ticks > 0
  end,
  idle_at_ms = function(state, quota) return state[1] + ceil(state[2] / quota.rate) end,
  reset_ms = function(state, quota)
    if state[2] == 0 then return 0 end
    local over = state[2] - (ceil(state[2] / quota.per_ms) - 1) * quota.per_ms
    return ceil(over / quota.rate) + state[1] - now_ms
  end,
}

-- Removes lines without a count after the last line with a count. With back_ms below 30 days and all counts together
-- below 2^20, no value comes near the 32 bits that crates/limit stores it in.
local function trim(state)
  for i = #state, 4, -2 do
    if state[i] > 0 then break end
    state[i], state[i - 1] = nil, nil
  end
end

local function logged(state)
  local count = 0
  for i = 4, #state, 2 do count = count + state[i] end
  return count
end

local log = {
  letter = 's', least = 2, most = 2 + 2 * LINES,
  advance = function(state, quota)
    if state[1] > now_ms + SET_BACK_MS_MAX then return { 0, 0 } end
    for i = 4, #state, 2 do
      if state[1] - state[i - 1] + quota.per_ms <= now_ms then state[i - 1], state[i] = 0, 0 end
    end
    trim(state)
    return #state > 2 and state or { 0, 0 }
  end,
  wait_ms = function(state, quota, cost)
    local used, wait_ms = logged(state) + cost, 0
    for i = #state, 4, -2 do
      if used <= quota.rate then break end
      -- Above 0: `advance` has cleared expired lines. Lines without a count have no effect: the next line overwrites
      -- the wait.
      used, wait_ms = used - state[i], state[1] - state[i - 1] + quota.per_ms - now_ms
    end
    return wait_ms
  end,
  used = logged,
  add = function(state, quota, cost)
    local latest_ms = max(now_ms, state[1])
    local since_ms = latest_ms - state[1]
    if #state == 2 or since_ms + state[2] >= ceil(quota.per_ms / 7) then
      local last = #state
      if last == 2 + 2 * LINES then
        state[last - 2] = state[last - 2] + state[last]
        state[last], state[last - 1] = nil, nil
      end
      table.insert(state, 3, 0)
      table.insert(state, 3, 0)
      state[2] = 0
    else
      state[2] = state[2] + since_ms
    end
    for i = 6, #state, 2 do
      if state[i] > 0 then state[i - 1] = state[i - 1] + since_ms end
    end
    state[1], state[4] = latest_ms, state[4] + cost
  end,
  take_back = function(state, quota, cost)
    local rest = cost
    for i = 4, #state, 2 do
      local taken = min(state[i], rest)
      state[i], rest = state[i] - taken, rest - taken
    end
    trim(state)
    return rest < cost
  end,
  idle_at_ms = function(state, quota) return #state > 2 and state[1] + quota.per_ms or 0 end,
  -- The last line has a count, or there is no line.
  reset_ms = function(state, quota)
    return #state > 2 and max(state[1] - state[#state - 1] + quota.per_ms - now_ms, 0) or 0
  end,
}

-- Whether a period starts in the future only because the clock went back a little.
local function is_set_back(start_ms) return start_ms > now_ms and start_ms <= now_ms + SET_BACK_MS_MAX end

local window = {
  letter = 'f', least = 2, most = 2, has_mark = true,
  advance = function(state, quota)
    local start_ms = now_ms - now_ms % quota.per_ms
    if state[1] == start_ms or is_set_back(state[1]) then return state end
    return { start_ms, 0 }
  end,
  wait_ms = function(state, quota, cost)
    return state[2] + cost <= quota.rate and 0 or max(state[1] + quota.per_ms - now_ms, 0)
  end,
  used = function(state) return state[2] end,
  add = function(state, quota, cost) state[2] = state[2] + cost end,
  take_back = function(state, quota, cost, mark)
    local taken = mark == state[1] and min(cost, state[2]) or 0
    state[2] = state[2] - taken
    return taken > 0
  end,
  idle_at_ms = function(state, quota) return state[2] == 0 and state[1] or state[1] + quota.per_ms end,
  reset_ms = function(state, quota)
    return max((state[2] == 0 and state[1] or state[1] + quota.per_ms) - now_ms, 0)
  end,
}

local in_flight = {
  letter = 'c', least = 3, most = 3, has_mark = true,
  advance = function(state, quota)
    local start_ms = now_ms - now_ms % quota.per_ms
    if state[1] == start_ms or is_set_back(state[1]) then return state end
    return { start_ms, 0, state[1] + quota.per_ms == start_ms and state[2] or 0 }
  end,
  wait_ms = function(state, quota, cost) return state[2] + state[3] + cost <= quota.rate and 0 or RETRY_MS end,
  used = function(state) return state[2] + state[3] end,
  add = function(state, quota, cost) state[2] = state[2] + cost end,
  take_back = function(state, quota, cost, mark)
    local which = mark == state[1] and 2 or mark + quota.per_ms == state[1] and 3
    local taken = which and min(cost, state[which]) or 0
    if taken > 0 then state[which] = state[which] - taken end
    return taken > 0
  end,
  idle_at_ms = function(state, quota)
    return state[2] + state[3] == 0 and state[1] or state[1] + 2 * quota.per_ms
  end,
  -- It is unknown when a request in flight ends.
  reset_ms = function() return 0 end,
}

local algorithms = { g = gcra, s = log, f = window, c = in_flight }
local fresh = { g = { 0, 0, 0 }, s = { 0, 0 }, f = { 0, 0 }, c = { 0, 0, 0 } }

local quotas = {}
for letter, rate, per_ms, burst in string.gmatch(ARGV[2], '(%a) (%d+) (%d+) (%d+) ') do
  rate, per_ms, burst = tonumber(rate), tonumber(per_ms), tonumber(burst)
  quotas[#quotas + 1] = {
    algorithm = algorithms[letter], rate = rate, per_ms = per_ms, burst = burst, ticks = burst * per_ms,
  }
end

-- Returns the next number of ARGV[3]; nil after the last.
local digits = string.gmatch(ARGV[3], '%d+')
local function next_number()
  local text = digits()
  return text and tonumber(text)
end

-- Parses a state. An invalid one counts as missing.
local function parse(text, algorithm)
  if not text or not string.find(text, '^' .. algorithm.letter .. ' [%d ]+$') then
    return { unpack(fresh[algorithm.letter]) }
  end
  local state = {}
  for number in string.gmatch(text, '%d+') do
    number = tonumber(number)
    if number >= WHOLE_MAX or #state == algorithm.most then return { unpack(fresh[algorithm.letter]) } end
    state[#state + 1] = number
  end
  if #state < algorithm.least or algorithm == log and #state % 2 == 1 then
    return { unpack(fresh[algorithm.letter]) }
  end
  return state
end

-- The entry of each key, by index: the text to read or write in Redis, and the current state under a quota.
local entries = {}
for first = 1, #KEYS, 1000 do
  -- In parts, because Lua's stack is limited. MGET returns nothing for keys that are not strings.
  local last = min(first + 999, #KEYS)
  local texts = redis.call('MGET', unpack(KEYS, first, last))
  for place = first, last do entries[place] = { text = texts[place - first + 1] } end
end

-- If the entry has changed, formats its state for Redis and for the next quota.
local function put_down(entry)
  if not entry.is_changed then return end
  local algorithm, state = entry.quota.algorithm, entry.state
  -- %.0f writes no exponents.
  entry.text = string.format(algorithm.letter .. string.rep(' %.0f', #state), unpack(state))
  entry.ttl_ms = max(algorithm.idle_at_ms(state, entry.quota) - now_ms, 0) + SET_BACK_MS_MAX
  entry.is_changed = false
end

-- Returns the state of a key under a quota. Reading alone changes nothing in Redis.
local function state_of(entry, quota)
  if entry.quota ~= quota then
    put_down(entry)
    entry.state = quota.algorithm.advance(parse(entry.text, quota.algorithm), quota)
    entry.quota = quota
  end
  return entry.state
end

-- Writes the changed keys, each once.
local function write()
  for place, entry in ipairs(entries) do
    put_down(entry)
    if entry.ttl_ms then
      redis.call('SET', KEYS[place], entry.text, 'PX', string.format('%.0f', entry.ttl_ms))
    end
  end
end

