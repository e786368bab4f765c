-- Renews the leases of a router's waiters.
-- KEYS    waiters, evicted, then the request of each waiter (one that is never set for those without a request id)
-- ARGV    lease_ms, then the waiter ids in the same order
-- returns {displaced, answered, evicted}: ids of those that are not in the line any more, of those whose request was
--         answered with somebody else's session, and of those that made way for others in a full queue
local displaced, answered, evicted = {}, {}, {}
local lease_until = now_ms() + ARGV[1]
for i = 2, #ARGV do
  if redis.call('ZREM', KEYS[2], ARGV[i]) == 1 then
    evicted[#evicted + 1] = ARGV[i]
  elseif redis.call('HEXISTS', KEYS[1], ARGV[i] .. '|member') == 0 then
    displaced[#displaced + 1] = ARGV[i]
  else
    redis.call('HSET', KEYS[1], ARGV[i] .. '|lease_until_ms', lease_until)
    if redis.call('EXISTS', KEYS[i + 1]) == 1 then
      answered[#answered + 1] = ARGV[i]
    end
  end
end
return {displaced, answered, evicted}
