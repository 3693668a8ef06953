/** A reason that is a sentence for the person who looks at the page. */
export class Said extends Error {}
