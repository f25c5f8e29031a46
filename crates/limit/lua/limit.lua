-- limit: decides, for a batch of requests in their order, which its rate limits let pass, and charges those.
--
-- KEYS, ARGV: see limit_state.lua. On Redis Cluster all keys must be of one slot.
-- Numbers: for each request how many asks it has, then for each of them
--   key      its place
--   quota    its place
--   cost     what the request takes
--   extra    of what is left when all costs of the request are paid, up to so many units more are taken
--
-- If all asks of a request are allowed, all are charged, else none is; a call that refuses all writes nothing. Asks of
-- one key in one request count together: the second is asked whether it may pass with the first.
--
-- Returns five integers an ask, in the order given:
--   wait_ms    after how many milliseconds it may pass; 0: now
--   remaining  units left: after the request, or as it was if any ask of it must wait
--   reset_ms   after how many milliseconds more are there, if nothing more is asked; 0: all are there, or nobody knows
--   mark       what limit_back needs to know
--   taken      the units charged: 0 if any ask of the request must wait

local replies, request = {}, 0

-- Writes what is left of an ask's limit into its reply, which ends at `at`.
local function tell(entry, quota, at)
  local state = state_of(entry, quota)
  replies[at - 3] = max(quota.burst - quota.algorithm.used(state, quota), 0)
  replies[at - 2] = quota.algorithm.reset_ms(state, quota)
end

-- Looks at one ask. `due` is what it will be charged: a cost beyond the burst counts as all there is, also if
-- it is the cost of several asks of one key.
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
