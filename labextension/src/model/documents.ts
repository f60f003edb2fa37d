/**
 * Versions of documents: a patch makes the next one (JSON Patch, RFC 6902).
 *
 * A version is not changed: parts that a patch does not touch are the same objects in the next one.
 */
import { Pointer } from 'rfc6902/pointer.js';
import { apply } from 'rfc6902/patch.js';
import type { Operation } from 'rfc6902/diff.js';

/** The changes from one version to the next, as det_jupyter/contract/documents/patches.py makes them. */
export type Patch = readonly Operation[];

type Part = Record<string, unknown>; // or an array

/**
 * The next version of a document.
 *
 * @throws If the patch belongs to another version.
 */
export function patched<T extends object>(document: T, patch: Patch): T {
  const changed = copied(document) as T;
  const own = new Set<unknown>([changed]);
  for (const operation of patch) {
    copyAlong(changed as Part, operation.path, own);
    const error = apply(changed, operation);
    if (error !== null) {
      throw error;
    }
  }
  return changed;
}

/** Replace the parts on the way to what a path names by copies, each once. */
function copyAlong(root: Part, path: string, own: Set<unknown>): void {
  let part = root;
  for (const token of Pointer.fromJSON(path).tokens.slice(1, -1)) {
    const inner = part[token];
    if (typeof inner !== 'object' || inner === null) {
      return; // the library says what is wrong
    }
    if (!own.has(inner)) {
      part[token] = copied(inner);
      own.add(part[token]);
    }
    part = part[token] as Part;
  }
}

function copied(part: object): object {
  return Array.isArray(part) ? [...(part as unknown[])] : { ...part };
}
