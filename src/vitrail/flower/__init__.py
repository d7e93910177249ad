"""Real federations: the engine's server and sites, with Flower carrying messages between them.

No method knows about Flower. `coordinator` plays the engine's rounds with `RemoteSites`, `site`
plays the engine's turns; both speak bytes of `vitrail.wire`, which a `Link` carries.
"""
