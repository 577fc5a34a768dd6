'use strict'
// kafkajs brings gzip; the other codecs are plugged in, as its documentation says to.

const { CompressionTypes, CompressionCodecs } = require('kafkajs')
const lz4 = require('lz4-napi')
const snappy = require('snappyjs')
const { ZstdCodec } = require('zstd-codec')

const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0])
const XERIAL_HEADER = 16

// Java's library cuts snappy data into blocks behind a header of its own; others send one plain block.
const unsnap = (buffer) => {
  if (!buffer.subarray(0, XERIAL.length).equals(XERIAL)) return Buffer.from(snappy.uncompress(buffer))
  const blocks = []
  for (let at = XERIAL_HEADER; at < buffer.length; ) {
    const size = buffer.readUInt32BE(at)
    blocks.push(Buffer.from(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size))))
    at += 4 + size
  }
  return Buffer.concat(blocks)
}

const plug = (type, compress, decompress) => {
  CompressionCodecs[type] = () => ({
    compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(decompress(buffer)),
  })
}

plug(CompressionTypes.Snappy, (data) => snappy.compress(data), unsnap)
plug(CompressionTypes.LZ4, (data) => lz4.compressFrameSync(data), (data) => lz4.decompressFrameSync(data))

const ready = new Promise((resolve) => {
  ZstdCodec.run((zstd) => {
    const streaming = new zstd.Streaming()
    plug(CompressionTypes.ZSTD, (data) => streaming.compress(data, 3), (data) => streaming.decompress(data))
    resolve()
  })
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

module.exports = { CODECS, ready }
