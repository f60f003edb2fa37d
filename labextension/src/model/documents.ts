/**
 * Versions of documents: a patch makes the next one (JSON Patch, RFC 6902).
 *
 * A version is not changed: parts that a patch does not touch are the same objects in the next one,
 * and each other part is copied once (docs/decisions/0108).
 */

/** The changes from one version to the next, as det_jupyter/contract/documents/patches.py makes them. */
export type Patch = readonly IOperation[];

export interface IOperation {
  op: 'add' | 'replace' | 'remove';
  path: string;
  value?: unknown;
}

type Part = Record<string, unknown> | unknown[];

/**
 * The next version of a document.
 *
 * @throws If the patch belongs to another version.
 */
export function patched<T extends object>(document: T, patch: Patch): T {
  const changed = { ...document };
  const own = new Set<unknown>([changed]); // parts that belong to no other version
  for (const operation of patch) {
    const names = operation.path.split('/').slice(1);
    const name = unescaped(names.pop() ?? '');
    let part = changed as Part;
    for (const each of names) {
      part = ownPart(part, unescaped(each), own);
    }
    apply(part, name, operation);
  }
  return changed;
}

function apply(part: Part, name: string, { op, path, value }: IOperation): void {
  if (op !== 'add' && !Object.hasOwn(part, name)) {
    throw new Error(`a patch that does not fit: ${op} ${path}`);
  }
  if (!Array.isArray(part)) {
    if (op === 'remove') {
      Reflect.deleteProperty(part, name);
    } else {
      const field = { value, writable: true, enumerable: true, configurable: true };
      Object.defineProperty(part, name, field); // the name may be `__proto__`
    }
  } else if (op === 'replace') {
    part[Number(name)] = value;
  } else if (op === 'remove') {
    part.splice(Number(name), 1);
  } else {
    part.splice(name === '-' ? part.length : Number(name), 0, value);
  }
}

/** The part of this name, which may be changed: a copy, unless it is one already. */
function ownPart(outer: Part, name: string, own: Set<unknown>): Part {
  const parts = outer as Record<string, unknown>;
  let inner = Object.hasOwn(outer, name) ? parts[name] : null;
  if (typeof inner !== 'object' || inner === null) {
    throw new Error(`a patch that does not fit: there is no ${name}`);
  }
  if (!own.has(inner)) {
    inner = Array.isArray(inner) ? [...(inner as unknown[])] : { ...inner };
    own.add(inner);
    parts[name] = inner;
  }
  return inner as Part;
}

function unescaped(name: string): string {
  return name.replaceAll('~1', '/').replaceAll('~0', '~');
}
