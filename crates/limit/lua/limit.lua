-- limit: checks the rate limits of a batch of requests, in their order, and charges the allowed requests.
--
-- KEYS, ARGV: see limit_state.lua. On Redis Cluster, all keys must be in one slot.
-- Numbers: for each request the number of its asks, then for each ask, the check of one limit
--   key      index of the key
--   quota    index of the quota
--   cost     units that the request costs
--   extra    maximum additional units, taken from the rest after all costs of the request are paid
--
-- If all asks of a request are allowed, the script charges all of them, otherwise none. A call that refuses all requests
-- writes nothing. Asks of one request with the same key count together, as one with the sum of their costs.
--
-- Returns five integers for each ask, in order:
--   wait_ms    milliseconds until it may pass; 0: now
--   remaining  remaining units: after the request, or unchanged if any ask of the request must wait
--   reset_ms   milliseconds until more units are available without further requests; 0: all are available, or unknown
--   mark       the mark for limit_back
--   taken      charged units; 0 if any ask of the request must wait

local replies, request = {}, 0

-- Writes the remaining quota of an ask into its reply, which ends at index `at`.
local function tell(entry, quota, at)
  local state = state_of(entry, quota)
  replies[at - 3] = max(quota.burst - quota.algorithm.used(state, quota), 0)
  replies[at - 2] = quota.algorithm.reset_ms(state, quota)
end

-- Checks one ask. `due` is its charge. A cost above the burst counts as the burst, also for the sum of several asks
-- with the same key.
local function look(entry, quota, cost, extra)
  local algorithm, state, at = quota.algorithm, state_of(entry, quota), #replies + 5
  if entry.request ~= request then entry.request, entry.asked = request, 0 end
  local before = min(entry.asked, quota.burst)
  entry.asked = entry.asked + cost
  local asked = min(entry.asked, quota.burst)
  local wait_ms = algorithm.wait_ms(state, quota, asked)
  replies[at - 4] = wait_ms
  tell(entry, quota, at)
  replies[at - 1] = algorithm.has_mark and state[1] or 0
  replies[at] = 0
  return { entry = entry, quota = quota, due = asked - before, extra = extra, wait_ms = wait_ms, at = at }
end

local function charge(ask, units)
  if units <= 0 then return end
  local state = state_of(ask.entry, ask.quota)
  ask.quota.algorithm.add(state, ask.quota, units)
  ask.entry.is_changed = true
  replies[ask.at] = replies[ask.at] + units
end

local function left(ask)
  return ask.quota.burst - ask.quota.algorithm.used(state_of(ask.entry, ask.quota), ask.quota)
end

for count in next_number do
  request = request + 1
  local asks, is_allowed = {}, true
  for i = 1, count do
    local ask = look(entries[next_number()], quotas[next_number()], next_number(), next_number())
    is_allowed = is_allowed and ask.wait_ms == 0
    asks[i] = ask
  end
  if is_allowed then
    for _, ask in ipairs(asks) do charge(ask, ask.due) end
    for _, ask in ipairs(asks) do
      if ask.extra > 0 then charge(ask, min(ask.extra, left(ask))) end
    end
    for _, ask in ipairs(asks) do tell(ask.entry, ask.quota, ask.at) end
  end
end
write()
return replies
