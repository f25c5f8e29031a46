-- For wrk: every request comes from one of 100,000 users, in an order that looks like chance.
local n = 1
function request()
  n = (n * 1103515245 + 12345) % 2147483648
  wrk.headers["x-user-id"] = "user-" .. n % 100000
  return wrk.format("GET", "/api/things")
end
