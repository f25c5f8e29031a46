-- For wrk: makes links one by one, each with a target of 100 bytes of its own. The token comes by -H.
local n = 0
local id = math.random(1, 999999)

function init()
  math.randomseed(os.time())
  id = math.random(1, 999999)
end

function request()
  n = n + 1
  local path = string.format("%06d/%010d", id, n)
  local body = '{"target":"https://shop.example.com/campaigns/spring/' .. path .. string.rep("x", 41) .. '"}'
  return wrk.format("POST", "/links", nil, body)
end

-- One line for the program that runs this: requests, microseconds, errors, then latencies in microseconds.
function done(summary, latency)
  local e = summary.errors
  local errors = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format("weir %d %d %d %d %d %d %d\n", summary.requests, summary.duration, errors,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
