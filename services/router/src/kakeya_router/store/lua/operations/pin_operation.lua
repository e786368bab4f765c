-- Says what the workers of an operation have to name from now on, when it is gone on with.
-- of a session
-- arg claim, features
-- out pinned
-- out gone: closed, lost or taken over
if not holds() then
  return 'gone'
end
redis.call('HSET', key.session, 'operation_features', arg.features)
return 'pinned'
