-- fit_route: reads the routes of SKUs.
--
-- KEYS: for each SKU the bucket with its route (hash: SKU to a route, see fit_route_put.lua); all in one slot
-- ARGV: the SKUs, in the same order
--
-- Returns for each SKU its route, or null.

local routes = {}
for i, sku in ipairs(ARGV) do routes[i] = redis.call('HGET', KEYS[i], sku) end
return routes
