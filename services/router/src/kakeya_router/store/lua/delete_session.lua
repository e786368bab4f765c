-- Removes every trace of a session that begin_close has claimed, and gives its lane back.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens
-- ARGV    session_id, op_id, history_length (the final one)
-- returns 'deleted' | 'gone' (another router claimed it after this one's lease had lapsed)
if redis.call('HGET', KEYS[2], 'op_id') ~= ARGV[2] then
  return 'gone'
end
charge_operation(ARGV[3], now_ms())
give_back()
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
return 'deleted'
