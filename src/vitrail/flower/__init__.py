"""Real federations: the engine's server and sites, with Flower carrying messages between them.

No method knows about Flower. `server` plays the engine's rounds with `Remote` members, `station`
plays the engine's turns at a site; both speak bytes of `vitrail.wire`, which a `Link` carries.
"""
